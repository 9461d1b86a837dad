(module
  (memory (export "memory") 1)
  (data (i32.const 65530) "123456")
  (data (i32.const 65531) "123456"))
