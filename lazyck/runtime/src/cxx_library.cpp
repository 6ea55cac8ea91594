// Functions of the C++ library that other libraries export copies of: those that are younger than the C++ library of
// the distributions which wheels must run on, so that wheels' libraries hold them themselves (torch's do). Under
// --as-needed a linker takes such a library for needed if it comes before the C++ library and a lazy library's runtime
// leaves the name undefined. So the runtime has them, too, under names of its own: lazyck/runtime/hide.py renames these
// definitions and all uses.
#include <new>

#ifdef __GLIBCXX__
namespace std {

__attribute__((__noreturn__)) void __throw_bad_array_new_length();
void __throw_bad_array_new_length() { throw bad_array_new_length(); }

}  // namespace std
#endif
