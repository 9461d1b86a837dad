(module
  (memory (export "memory") 1 65536)
  (data (i32.const 40000) "downwards, from the end to the begin, and each byte is more than it was")
  (func $down (param $from i32) (param $to i32) (param $turns i32)
    (loop $again
      (i64.store (local.get $to) (i64.add (i64.load (local.get $from)) (i64.const 0x0101010101010101)))
      (local.set $from (i32.sub (local.get $from) (i32.const 8)))
      (local.set $to (i32.sub (local.get $to) (i32.const 8)))
      (br_if $again (local.tee $turns (i32.add (local.get $turns) (i32.const -1))))))
  (func (export "apart") (call $down (i32.const 40128) (i32.const 20000) (i32.const 100)))
  (func (export "by four") (call $down (i32.const 40128) (i32.const 40124) (i32.const 100)))
  (func (export "to the begin") (call $down (i32.const 40128) (i32.const 792) (i32.const 100)))
  (func (export "below it") (call $down (i32.const 40128) (i32.const 792) (i32.const 101)))
  (func (export "nearly forever") (call $down (i32.const 40128) (i32.const 20000) (i32.const 0))))
