@answer = global i32 42

define i32 @data(i32 %x) {
  %v = load i32, ptr @answer
  ret i32 %v
}
