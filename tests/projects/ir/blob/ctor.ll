@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @init, ptr null }]
@state = internal global i32 0

define internal void @init() {
  store i32 12, ptr @state
  ret void
}

define i32 @initialized(i32 %x) {
  %v = load i32, ptr @state
  ret i32 %v
}
