; What LLVM makes calls of by itself. The loader fills in where the C library has them.
@library = hidden global [3 x ptr] zeroinitializer, align 8
define hidden ptr @memcpy(ptr %to, ptr %from, i64 %length) #3 {
  %f = load ptr, ptr @library, align 8
  %r = tail call ptr %f(ptr %to, ptr %from, i64 %length)
  ret ptr %r
}
define hidden ptr @memmove(ptr %to, ptr %from, i64 %length) #3 {
  %a = getelementptr inbounds [3 x ptr], ptr @library, i64 0, i64 1
  %f = load ptr, ptr %a, align 8
  %r = tail call ptr %f(ptr %to, ptr %from, i64 %length)
  ret ptr %r
}
define hidden ptr @memset(ptr %to, i32 %byte, i64 %length) #3 {
  %a = getelementptr inbounds [3 x ptr], ptr @library, i64 0, i64 2
  %f = load ptr, ptr %a, align 8
  %r = tail call ptr %f(ptr %to, i32 %byte, i64 %length)
  ret ptr %r
}

; Divisions of 128 bits, which processors have not, and LLVM makes of sums and products that loops compute. Bit by bit: quotient and rest.
define internal { i128, i128 } @divide(i128 %n, i128 %d) #3 {
begin:
  br label %bit
bit:
  %i = phi i32 [ 127, %begin ], [ %next, %bit ]
  %q = phi i128 [ 0, %begin ], [ %q2, %bit ]
  %r = phi i128 [ 0, %begin ], [ %r3, %bit ]
  %place = zext i32 %i to i128
  %shifted = lshr i128 %n, %place
  %digit = and i128 %shifted, 1
  %carry = icmp slt i128 %r, 0
  %r1 = shl i128 %r, 1
  %r2 = or i128 %r1, %digit
  %reaches = icmp uge i128 %r2, %d
  %fits = or i1 %carry, %reaches
  %less = sub i128 %r2, %d
  %r3 = select i1 %fits, i128 %less, i128 %r2
  %q1 = shl i128 %q, 1
  %one = zext i1 %fits to i128
  %q2 = or i128 %q1, %one
  %next = sub i32 %i, 1
  %last = icmp eq i32 %i, 0
  br i1 %last, label %end, label %bit
end:
  %a = insertvalue { i128, i128 } poison, i128 %q2, 0
  %b = insertvalue { i128, i128 } %a, i128 %r3, 1
  ret { i128, i128 } %b
}
define hidden i128 @__udivti3(i128 %n, i128 %d) #3 {
  %x = call { i128, i128 } @divide(i128 %n, i128 %d)
  %q = extractvalue { i128, i128 } %x, 0
  ret i128 %q
}
define hidden i128 @__umodti3(i128 %n, i128 %d) #3 {
  %x = call { i128, i128 } @divide(i128 %n, i128 %d)
  %r = extractvalue { i128, i128 } %x, 1
  ret i128 %r
}
define hidden i128 @__divti3(i128 %n, i128 %d) #3 {
  %m = call i128 @llvm.abs.i128(i128 %n, i1 false)
  %e = call i128 @llvm.abs.i128(i128 %d, i1 false)
  %q = call i128 @__udivti3(i128 %m, i128 %e)
  %signs = xor i128 %n, %d
  %negative = icmp slt i128 %signs, 0
  %minus = sub i128 0, %q
  %result = select i1 %negative, i128 %minus, i128 %q
  ret i128 %result
}
define hidden i128 @__modti3(i128 %n, i128 %d) #3 {
  %m = call i128 @llvm.abs.i128(i128 %n, i1 false)
  %e = call i128 @llvm.abs.i128(i128 %d, i1 false)
  %r = call i128 @__umodti3(i128 %m, i128 %e)
  %negative = icmp slt i128 %n, 0
  %minus = sub i128 0, %r
  %result = select i1 %negative, i128 %minus, i128 %r
  ret i128 %result
}
