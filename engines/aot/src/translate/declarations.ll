; Everything that translated code may call, and what it says about its memory accesses.

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i32 @llvm.ctlz.i32(i32, i1)
declare i32 @llvm.cttz.i32(i32, i1)
declare i32 @llvm.ctpop.i32(i32)
declare i32 @llvm.fshl.i32(i32, i32, i32)
declare i32 @llvm.fshr.i32(i32, i32, i32)
declare i64 @llvm.ctlz.i64(i64, i1)
declare i64 @llvm.cttz.i64(i64, i1)
declare i64 @llvm.ctpop.i64(i64)
declare i64 @llvm.fshl.i64(i64, i64, i64)
declare i64 @llvm.fshr.i64(i64, i64, i64)
declare float @llvm.fabs.f32(float)
declare float @llvm.ceil.f32(float)
declare float @llvm.floor.f32(float)
declare float @llvm.trunc.f32(float)
declare float @llvm.roundeven.f32(float)
declare float @llvm.sqrt.f32(float)
declare float @llvm.minimum.f32(float, float)
declare float @llvm.maximum.f32(float, float)
declare float @llvm.copysign.f32(float, float)
declare double @llvm.fabs.f64(double)
declare double @llvm.ceil.f64(double)
declare double @llvm.floor.f64(double)
declare double @llvm.trunc.f64(double)
declare double @llvm.roundeven.f64(double)
declare double @llvm.sqrt.f64(double)
declare double @llvm.minimum.f64(double, double)
declare double @llvm.maximum.f64(double, double)
declare double @llvm.copysign.f64(double, double)
declare <4 x float> @llvm.fabs.v4f32(<4 x float>)
declare <4 x float> @llvm.ceil.v4f32(<4 x float>)
declare <4 x float> @llvm.floor.v4f32(<4 x float>)
declare <4 x float> @llvm.trunc.v4f32(<4 x float>)
declare <4 x float> @llvm.roundeven.v4f32(<4 x float>)
declare <4 x float> @llvm.sqrt.v4f32(<4 x float>)
declare <4 x float> @llvm.minimum.v4f32(<4 x float>, <4 x float>)
declare <4 x float> @llvm.maximum.v4f32(<4 x float>, <4 x float>)
declare <4 x float> @llvm.copysign.v4f32(<4 x float>, <4 x float>)
declare <2 x double> @llvm.fabs.v2f64(<2 x double>)
declare <2 x double> @llvm.ceil.v2f64(<2 x double>)
declare <2 x double> @llvm.floor.v2f64(<2 x double>)
declare <2 x double> @llvm.trunc.v2f64(<2 x double>)
declare <2 x double> @llvm.roundeven.v2f64(<2 x double>)
declare <2 x double> @llvm.sqrt.v2f64(<2 x double>)
declare <2 x double> @llvm.minimum.v2f64(<2 x double>, <2 x double>)
declare <2 x double> @llvm.maximum.v2f64(<2 x double>, <2 x double>)
declare <2 x double> @llvm.copysign.v2f64(<2 x double>, <2 x double>)
declare i32 @llvm.fptosi.sat.i32.f32(float)
declare i32 @llvm.fptosi.sat.i32.f64(double)
declare i64 @llvm.fptosi.sat.i64.f32(float)
declare i64 @llvm.fptosi.sat.i64.f64(double)
declare <4 x i32> @llvm.fptosi.sat.v4i32.v4f32(<4 x float>)
declare <2 x i32> @llvm.fptosi.sat.v2i32.v2f64(<2 x double>)
declare i32 @llvm.fptoui.sat.i32.f32(float)
declare i32 @llvm.fptoui.sat.i32.f64(double)
declare i64 @llvm.fptoui.sat.i64.f32(float)
declare i64 @llvm.fptoui.sat.i64.f64(double)
declare <4 x i32> @llvm.fptoui.sat.v4i32.v4f32(<4 x float>)
declare <2 x i32> @llvm.fptoui.sat.v2i32.v2f64(<2 x double>)
declare <16 x i8> @llvm.ctpop.v16i8(<16 x i8>)
declare <16 x i8> @llvm.sadd.sat.v16i8(<16 x i8>, <16 x i8>)
declare <16 x i8> @llvm.uadd.sat.v16i8(<16 x i8>, <16 x i8>)
declare <16 x i8> @llvm.ssub.sat.v16i8(<16 x i8>, <16 x i8>)
declare <16 x i8> @llvm.usub.sat.v16i8(<16 x i8>, <16 x i8>)
declare <8 x i16> @llvm.sadd.sat.v8i16(<8 x i16>, <8 x i16>)
declare <8 x i16> @llvm.uadd.sat.v8i16(<8 x i16>, <8 x i16>)
declare <8 x i16> @llvm.ssub.sat.v8i16(<8 x i16>, <8 x i16>)
declare <8 x i16> @llvm.usub.sat.v8i16(<8 x i16>, <8 x i16>)
declare <16 x i8> @llvm.smin.v16i8(<16 x i8>, <16 x i8>)
declare <16 x i8> @llvm.smax.v16i8(<16 x i8>, <16 x i8>)
declare <16 x i8> @llvm.umin.v16i8(<16 x i8>, <16 x i8>)
declare <16 x i8> @llvm.umax.v16i8(<16 x i8>, <16 x i8>)
declare <8 x i16> @llvm.smin.v8i16(<8 x i16>, <8 x i16>)
declare <8 x i16> @llvm.smax.v8i16(<8 x i16>, <8 x i16>)
declare <8 x i16> @llvm.umin.v8i16(<8 x i16>, <8 x i16>)
declare <8 x i16> @llvm.umax.v8i16(<8 x i16>, <8 x i16>)
declare <4 x i32> @llvm.smin.v4i32(<4 x i32>, <4 x i32>)
declare <4 x i32> @llvm.smax.v4i32(<4 x i32>, <4 x i32>)
declare <4 x i32> @llvm.umin.v4i32(<4 x i32>, <4 x i32>)
declare <4 x i32> @llvm.umax.v4i32(<4 x i32>, <4 x i32>)
declare <8 x i32> @llvm.smin.v8i32(<8 x i32>, <8 x i32>)
declare <16 x i8> @llvm.abs.v16i8(<16 x i8>, i1)
declare <8 x i16> @llvm.abs.v8i16(<8 x i16>, i1)
declare <4 x i32> @llvm.abs.v4i32(<4 x i32>, i1)
declare <2 x i64> @llvm.abs.v2i64(<2 x i64>, i1)
declare <8 x float> @llvm.sqrt.v8f32(<8 x float>)
declare <4 x double> @llvm.sqrt.v4f64(<4 x double>)
declare <8 x float> @llvm.fabs.v8f32(<8 x float>)
declare <4 x double> @llvm.fabs.v4f64(<4 x double>)
declare <32 x i8> @llvm.smin.v32i8(<32 x i8>, <32 x i8>)
declare <16 x i16> @llvm.smin.v16i16(<16 x i16>, <16 x i16>)
declare <32 x i8> @llvm.smax.v32i8(<32 x i8>, <32 x i8>)
declare <16 x i16> @llvm.smax.v16i16(<16 x i16>, <16 x i16>)
declare <8 x i32> @llvm.smax.v8i32(<8 x i32>, <8 x i32>)
declare <32 x i8> @llvm.umin.v32i8(<32 x i8>, <32 x i8>)
declare <16 x i16> @llvm.umin.v16i16(<16 x i16>, <16 x i16>)
declare <8 x i32> @llvm.umin.v8i32(<8 x i32>, <8 x i32>)
declare <32 x i8> @llvm.umax.v32i8(<32 x i8>, <32 x i8>)
declare <16 x i16> @llvm.umax.v16i16(<16 x i16>, <16 x i16>)
declare <8 x i32> @llvm.umax.v8i32(<8 x i32>, <8 x i32>)

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
declare i128 @llvm.abs.i128(i128, i1)

; Every function of the module. A recursion stays one, or it would not exhaust the stack.
attributes #0 = { nounwind "probe-stack"="inline-asm" "disable-tail-calls"="true" }
; Ways in and out.
attributes #1 = { nounwind noinline "probe-stack"="inline-asm" }
; A trap.
attributes #2 = { cold noreturn nounwind }
; Library functions.
attributes #3 = { nounwind noinline "no-builtins" }

!0 = !{}
; The alignment of a linear memory.
!1 = !{i64 4096}
; A branch that is hardly ever taken,
!2 = !{!"branch_weights", i32 1, i32 1048575}
; linear memory, the context,
!3 = !{!8}
!4 = !{!9}
; a branch that is hardly ever not taken,
!5 = !{!"branch_weights", i32 1048575, i32 1}
; and the size of a linear memory in bytes.
!6 = !{i64 0, i64 4294967297}
!7 = distinct !{!7}
!8 = distinct !{!8, !7}
!9 = distinct !{!9, !7}
; A loop that is not to be vectorised.
!10 = distinct !{!10, !11}
!11 = !{!"llvm.loop.vectorize.enable", i1 false}
