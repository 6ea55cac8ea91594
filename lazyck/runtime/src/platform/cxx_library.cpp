// Defines functions of the C++ library that other libraries export copies of. They are younger than
// the C++ library of the distributions that wheels must run on, so wheels' libraries hold them
// themselves (torch's do). Under --as-needed, a linker would count such a library as needed if it
// comes before the C++ library and a lazy library's runtime leaves the name undefined. So the
// runtime has definitions of its own: lazyck/runtime/hide.py renames these and all their uses.
#include <new>

#ifdef __GLIBCXX__
namespace std {

__attribute__((__noreturn__)) void __throw_bad_array_new_length();
void __throw_bad_array_new_length() { throw bad_array_new_length(); }

}  // namespace std
#endif
