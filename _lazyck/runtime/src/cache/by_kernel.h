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
#pragma once

#include <string>
#include <utility>

namespace lazyck::rt {

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
