; calls two other blobs
declare i32 @add3(i32)
declare i32 @twice(i32)

define i32 @chain(i32 %x) {
  %y = call i32 @add3(i32 %x)
  %z = call i32 @twice(i32 %y)
  ret i32 %z
}
