(module (func (result i32) (i64.const 1)))
