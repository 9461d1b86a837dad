(module
  (memory (export "memory") 1)
  (func $deep (export "deep") (param i32) (result i32)
    (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1)))
    (i32.add (call $deep (i32.add (local.get 0) (i32.const 1))) (i32.load (local.get 0)))))
