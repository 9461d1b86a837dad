(module
  (memory (export "memory") 1 1)
  (func (export "fill") (local $i i32)
    (loop $again
      (i64.store (local.get $i) (i64.mul (i64.extend_i32_u (local.get $i)) (i64.const 6364136223846793005)))
      (br_if $again (i32.ne (local.tee $i (i32.add (local.get $i) (i32.const 8))) (i32.const 65536)))))
  (func $add (param $a i32) (param $b i32) (param $to i32) (local $i i32)
    (loop $again
      (v128.store (i32.add (local.get $to) (local.get $i))
        (i32x4.add (v128.load (i32.add (local.get $a) (local.get $i))) (v128.load (i32.add (local.get $b) (local.get $i)))))
      (v128.store offset=16 (i32.add (local.get $to) (local.get $i))
        (i32x4.add (v128.load offset=16 (i32.add (local.get $a) (local.get $i))) (v128.load offset=16 (i32.add (local.get $b) (local.get $i)))))
      (br_if $again (i32.ne (local.tee $i (i32.add (local.get $i) (i32.const 32))) (i32.const 640)))))
  (func (export "apart") (call $add (i32.const 0) (i32.const 1000) (i32.const 2000)))
  (func (export "in place") (call $add (i32.const 3000) (i32.const 1000) (i32.const 3000)))
  (func (export "eight behind") (call $add (i32.const 4000) (i32.const 5000) (i32.const 4008)))
  (func (export "within") (call $add (i32.const 6000) (i32.const 6400) (i32.const 6200)))
  (func (export "out of it") (call $add (i32.const 0) (i32.const 65000) (i32.const 2000))))
