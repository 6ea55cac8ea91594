; calls back into the library
declare i32 @helper(i32)

define i32 @twice(i32 %x) {
  %y = mul i32 %x, 2
  %z = call i32 @helper(i32 %y)
  ret i32 %z
}
