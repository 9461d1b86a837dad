(module (import "a" "b" (func)) (export "c" (func 0)))
