(module
  (memory (export "memory") 1)
  (data (i32.const 0) "what the last turn has loaded is shifted into what this one has, as in a convolution of doubles...")
  (func $carry (param $from i32) (param $to i32) (param $turns i32) (result v128) (local $last v128) (local $now v128)
    (loop $again
      (v128.store (local.get $to) (v128.xor
        (i8x16.shuffle 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 (local.get $last) (local.tee $now (v128.load (local.get $from))))
        (local.get $now)))
      (local.set $last (local.get $now))
      (local.set $from (i32.add (local.get $from) (i32.const 16)))
      (local.set $to (i32.add (local.get $to) (i32.const 16)))
      (br_if $again (local.tee $turns (i32.sub (local.get $turns) (i32.const 1)))))
    (local.get $last))
  (func (export "one") (result v128) (call $carry (i32.const 0) (i32.const 1024) (i32.const 1)))
  (func (export "even") (result v128) (call $carry (i32.const 0) (i32.const 1024) (i32.const 6)))
  (func (export "odd") (result v128) (call $carry (i32.const 3) (i32.const 2048) (i32.const 5)))
  (func (export "in place") (result v128) (call $carry (i32.const 0) (i32.const 0) (i32.const 6)))
  (func (export "behind") (result v128) (call $carry (i32.const 1024) (i32.const 1040) (i32.const 9))))
