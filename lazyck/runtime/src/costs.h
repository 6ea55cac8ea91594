// What compiles took before: the guess for the next one. One line per compile, in a file of the library's.
//
// line: "<seconds> <peak KiB> [!]<blob> <archs>\n", appended in one write, names as safe_name gives them; the newest
// line of a blob and its archs counts, else of the blob for others. '!': it was killed, for want of memory as it seems:
// the peak is a guess for the next try. Lines that do not parse are passed over. Files are read from the end, 64 KiB at
// most; what `lazyck prebuild build --write-costs` has put beside a bundle, 4 MiB.
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
    Cost blob;     // of this very blob, for these archs if they are known
    Cost largest;  // of each the largest among the library's latest compiles
};

// The last 64 KiB, or so many bytes, of a file of ours; "" where there is none.
std::string tail_of(const std::string& path, std::size_t most = 64 * 1024);

class Costs {
 public:
    // `path` is the library's file, the names are as they stand in it.
    Costs(std::string path, std::string blob, std::string archs)
        : m_path(std::move(path)), m_blob(std::move(blob)), m_archs(std::move(archs)) {}

    Guess guess() const;
    // The same by what came with a bundle, in the file `path`, where this cache knows nothing of the blob or library.
    Guess guess(const std::string& path) const;
    // A record that cannot be kept is no error.
    void add(const Cost& cost, bool was_killed = false) const;

 private:
    Guess guess_by(const std::string& text) const;

    std::string m_path;
    std::string m_blob;
    std::string m_archs;
};

}  // namespace lazyck::rt
