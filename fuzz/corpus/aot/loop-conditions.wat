(module
  (memory (export "memory") 1)
  (func $some (param $at i32) (param $turns i32) (result i64) (local $sum i64)
    (loop $again
      (if (i32.and (local.get $turns) (i32.const 1))
        (then (i32.store8 offset=3 (local.get $at) (local.get $turns)))
        (else (local.set $sum (i64.add (local.get $sum) (i64.load8_u offset=2 (local.get $at))))))
      (block $skip
        (br_if $skip (i32.and (local.get $turns) (i32.const 4)))
        (i32.store16 offset=200 (local.get $at) (i32.mul (local.get $turns) (i32.const 3))))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br_if $again (local.tee $turns (i32.sub (local.get $turns) (i32.const 3)))))
    (local.get $sum))
  (func (export "through") (result i64) (call $some (i32.const 100) (i32.const 300)))
  (func (export "past 0") (result i64) (call $some (i32.const 65000) (i32.const 100)))
  (func (export "at the end") (result i64) (call $some (i32.const 65300) (i32.const 105)))
  (func (export "at the end, not always") (result i64) (call $some (i32.const 65335) (i32.const 6))))
