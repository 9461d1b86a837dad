(module
  (memory (export "memory") 1 2)
  (func $touch (param i32) (i32.store (local.get 0) (i32.add (i32.load (local.get 0)) (local.get 0))))
  (func (export "calls") (local $i i32)
    (loop $again
      (call $touch (local.get $i))
      (br_if $again (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 12))) (i32.const 3000)))))
  (func (export "grows") (result i32) (local $i i32)
    (loop $again
      (if (i32.eq (local.get $i) (i32.const 65528)) (then (drop (memory.grow (i32.const 1)))))
      (i64.store (local.get $i) (i64.const -3))
      (br_if $again (i32.ne (local.tee $i (i32.add (local.get $i) (i32.const 8))) (i32.const 66000))))
    (memory.size))
  (func (export "nested") (local $i i32) (local $j i32)
    (loop $outer
      (local.set $j (i32.const 0))
      (loop $inner
        (i32.store (i32.add (i32.shl (local.get $i) (i32.const 8)) (i32.shl (local.get $j) (i32.const 2)))
          (i32.mul (local.get $i) (local.get $j)))
        (br_if $inner (i32.ne (local.tee $j (i32.add (local.get $j) (i32.const 1))) (i32.const 64))))
      (br_if $outer (i32.ne (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 40))))))
