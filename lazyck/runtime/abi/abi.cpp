// The numbers on which two C++ compilers and their libraries must agree before one can use objects
// that the other made. lazyck/runtime/shipped.py reads them from this file's object.

#include <pthread.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

// Only GNU's C++ library and GNU's C library will do.
#if !defined(__GLIBCXX__) || !defined(__GLIBC__)
#error "objects that lazyck brings are for GNU's C++ library and GNU's C library"
#endif
#if defined(_GLIBCXX_DEBUG) || defined(_GLIBCXX_DEBUG_PEDANTIC)
#error "containers that check themselves have other layouts"
#endif

#define SIZE(...) sizeof(__VA_ARGS__), alignof(__VA_ARGS__)

extern "C" {
// These must be equal.
extern const long long lazyck_abi_same[] = {
    __cplusplus / 100,
    _GLIBCXX_USE_CXX11_ABI,
    static_cast<char>(-1) < 0,
#ifdef __EXCEPTIONS
    1,
#else
    0,
#endif
#ifdef __GXX_RTTI
    1,
#else
    0,
#endif
    __BYTE_ORDER__,
    SIZE(long double),
    SIZE(wchar_t),
    SIZE(std::max_align_t),
    SIZE(std::size_t),
    SIZE(off_t),
    SIZE(time_t),
    SIZE(struct stat),
    SIZE(pthread_mutex_t),
    SIZE(pthread_cond_t),
    SIZE(std::string),
    SIZE(std::string_view),
    SIZE(std::vector<std::string>),
    SIZE(std::vector<bool>),
    SIZE(std::deque<std::string>),
    SIZE(std::map<std::string, std::string>),
    SIZE(std::multimap<std::string, std::string>),
    SIZE(std::set<std::string>),
    SIZE(std::unordered_map<std::string, std::string>),
    SIZE(std::unordered_set<std::string>),
    SIZE(std::array<std::string, 3>),
    SIZE(std::pair<char, std::string>),
    SIZE(std::optional<std::string>),
    SIZE(std::function<void()>),
    SIZE(std::shared_ptr<std::string>),
    SIZE(std::unique_ptr<std::string>),
    SIZE(std::mutex),
    SIZE(std::unique_lock<std::mutex>),
    SIZE(std::condition_variable),
    SIZE(std::thread),
    SIZE(std::future<void>),
    SIZE(std::atomic<std::string*>),
    SIZE(std::exception),
    SIZE(std::exception_ptr),
    SIZE(std::runtime_error),
    SIZE(std::error_code),
};
// These may be newer for users of the objects.
extern const long long lazyck_abi_least[] = {_GLIBCXX_RELEASE, __GLIBC__, __GLIBC_MINOR__};
}
