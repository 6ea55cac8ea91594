// What compiles took before: the guess for the next one. One line per compile, in a file of the library's.
//
// line: "<seconds> <peak KiB> [!]<blob>\n", appended in one write; the newest line of a blob counts. '!': it was
// killed, for want of memory as it seems: the peak is a guess for the next try. Lines that do not parse are passed
// over. Files are read from the end, 64 KiB at most.
#pragma once

#include <string>
#include <utility>

namespace lazyck::rt {

struct Cost {
    double seconds = 0;  // 0: unknown
    long peak_kib = 0;   // of the largest process; 0: unknown
};

struct Guess {
    Cost blob;     // of this very blob
    Cost largest;  // of each the largest among the library's latest compiles
};

class Costs {
 public:
    explicit Costs(std::string path) : m_path(std::move(path)) {}

    Guess guess(const std::string& blob) const;
    // A record that cannot be kept is no error.
    void add(const std::string& blob, const Cost& cost, bool was_killed = false) const;

 private:
    std::string m_path;
};

}  // namespace lazyck::rt
