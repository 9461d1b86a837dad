(module
  (memory (export "memory") 1 9)
  (func (export "load, then divide by zero") (param i64) (result i64)
    (loop $again (result i64)
      (br_if $again (i64.eqz (i64.div_s (i64.load (i32.const 0x76282031)) (i64.shr_u (local.get 0) (i64.const 63)))))
      (i64.const 7)))
  (func (export "always zero") (param i64) (result i64)
    (loop $again (result i64)
      (i64.load (i32.const 0x76282031)) (i64.const 0) i64.div_s
      (br_if $again (i64.eqz (local.get 0)))))
  (func (export "load, then no number") (param f32) (result i32) (local i32)
    (loop $again
      (i32.load (i32.const 0x76282031))
      (local.set 1 (i32.add (i32.trunc_f32_s (f32.copysign (f32.const nan) (local.get 0)))))
      (br_if $again (local.get 1)))
    (local.get 1))
  (func (export "load, then divide by an argument") (param i32) (result i32) (local i32)
    (loop $again
      (i32.load (i32.const 0x76282031))
      (i32.div_u (i32.const 1) (local.get 0))
      (local.set 1 (i32.add))
      (br_if $again (local.get 1)))
    (local.get 1))
  (func (export "load, then leave") (param i32) (result i64) (local i64)
    (block $out
      (loop $again
        (local.set 1 (i64.load (i32.const 0x76282031)))
        (br_if $out (i32.eqz (local.get 0)))
        (br_if $again (i64.eqz (local.get 1)))))
    (i64.const 7))
  (func (export "load, then assign anew") (param i32) (result i64) (local i64)
    (loop $again
      (local.set 1 (i64.load (i32.const 0x76282031)))
      (local.set 1 (i64.const 3))
      (br_if $again (i32.eq (local.get 0) (i32.const 12345))))
    (local.get 1))
  (func (export "load a local, then divide by zero") (param i32) (result i64) (local i64)
    (loop $again
      (local.set 1 (i64.load (i32.const 0x76282031)))
      (drop (i32.div_u (i32.const 4) (i32.eqz (i32.eqz (local.get 0)))))
      (br_if $again (i32.eq (local.get 0) (i32.const 12345))))
    (local.get 1)))
