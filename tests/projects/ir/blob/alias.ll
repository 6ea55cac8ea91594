@other_name = alias i32 (i32), ptr @implementation

define internal i32 @implementation(i32 %x) {
  ret i32 10
}
