(module
  (memory (export "memory") 1)
  (data (i32.const 0) "\02")
  (func $start (i32.store8 (i32.const 1) (i32.load8_u (i32.const 0))) (br_if 0 (i32.eqz (i32.load8_u (i32.const 0)))) unreachable)
  (start $start))
