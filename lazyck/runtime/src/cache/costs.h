// Records what compiles took, and guesses what the next one will take.
#pragma once

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

// Each library has a file, with one line for each compile.
//
// line: "<seconds> <peak KiB> [!]<blob> <archs>\n", appended in one write, with names in the form
// of safe_name. The newest line of a blob and its archs counts, else its newest line for other
// archs. '!' marks a compile that was killed, probably for want of memory; its peak is a guess for
// the next try. Lines that do not parse are ignored. Only the last 64 KiB of a file are read, or
// the last 4 MiB of the file that `lazyck prebuild build --write-costs` put beside a bundle.
class Costs {
 public:
    // `path` is the library's file; the names are as they are written there.
    Costs(std::string path, std::string blob, std::string archs)
        : m_path(std::move(path)), m_blob(std::move(blob)), m_archs(std::move(archs)) {}

    // Where this cache has no figures of the blob or library, uses the file `shipped` that came
    // with a bundle, if any.
    Guess guess(const std::string& shipped = "") const;
    // Appends a line. A failure to write it is no error.
    void add(const Cost& cost, bool was_killed = false) const;

 private:
    Guess guess_by(const std::string& text) const;

    std::string m_path;
    std::string m_blob;
    std::string m_archs;
};

// Decides whether a blob's first call costs less by kernel (its host unit and one kernel) or as a
// whole, from the recorded costs of this blob and of its library's other blobs.
//
// The file has one line for each compile of a part, appended in one write, with names in the form
// of safe_name. The newest line of a kind and blob counts. Of kernels, all lines count, since
// figures differ from run to run. All figures but the number of kernels are CPU seconds:
//     host <all> <to read the device's text> <to read all of that text> <kernels> <blob>
//     kernel <all> <blob>     a kernel, compiled from as much text as the host unit's stubs need
//     alone <all> <to read the device's text> <blob>     a kernel, compiled from all of the text
//     refused <all> <blob>    a kernel, or host code, that cannot be compiled by itself
//     whole <all> <blob>      the device code of all kernels
// Lines that do not parse are ignored. Only the last 64 KiB of a file are read.
class ByKernel {
 public:
    // `path` is the library's file; `blob` is the name as it is written there.
    ByKernel(std::string path, std::string blob) : m_path(std::move(path)), m_blob(std::move(blob)) {}

    // Returns whether a first call by kernel is expected to cost at most as much as the whole blob.
    // An estimated cost of the whole gets a margin. If nothing is known about this blob, most of
    // its library's other blobs decide. If nothing is known about those either, returns true, so
    // that the first blob goes by kernel and its costs become known.
    bool is_cheaper() const;
    // Appends what `lazyck-unit` reports that a compile took (units/src/units.h), which is one of
    // the lines above. A failure to write it is no error.
    void add(const std::string& said) const;

 private:
    std::string m_path, m_blob;
};

}  // namespace lazyck::rt
