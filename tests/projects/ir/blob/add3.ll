define i32 @add3(i32 %x) {
  %y = add i32 %x, 3
  ret i32 %y
}
