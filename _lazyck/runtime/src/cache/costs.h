// Records what compiles took, and guesses what the next one will take. Each library has a file,
// with one line for each compile.
//
// line: "<seconds> <peak KiB> [!]<blob> <archs>\n", appended in one write, with names in the form
// of safe_name. The newest line of a blob and its archs counts, else its newest line for other
// archs. '!' marks a compile that was killed, probably for want of memory; its peak is a guess for
// the next try. Lines that do not parse are ignored. Only the last 64 KiB of a file are read, or
// the last 4 MiB of the file that `lazyck prebuild build --write-costs` put beside a bundle.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

namespace lazyck::rt {

struct Cost {
    double seconds = 0;  // 0: unknown
    long peak_kib = 0;   // of the largest process; 0: unknown
};

struct Guess {
    Cost blob;     // of this very blob, for these archs if known
    Cost largest;  // the largest figures among the library's latest compiles
};

// Returns the last `most` bytes of a file of ours, or an empty string if there is none.
std::string tail_of(const std::string& path, std::size_t most = 64 * 1024);

class Costs {
 public:
    // `path` is the library's file; the names are as they are written there.
    Costs(std::string path, std::string blob, std::string archs)
        : m_path(std::move(path)), m_blob(std::move(blob)), m_archs(std::move(archs)) {}

    Guess guess() const;
    // Guesses also by the file `path` that came with a bundle, where this cache has no figures of
    // the blob or library.
    Guess guess(const std::string& path) const;
    // Appends a line. A failure to write it is no error.
    void add(const Cost& cost, bool was_killed = false) const;

 private:
    Guess guess_by(const std::string& text) const;

    std::string m_path;
    std::string m_blob;
    std::string m_archs;
};

}  // namespace lazyck::rt
