// Whether a blob's first call costs less by kernel, its host unit and one kernel, or as a whole: from what parts of it
// and of its library's other blobs took before.
//
// file: one line per compile of a part, appended in one write, names as safe_name gives them; the newest of a kind and
// blob counts, of kernels all, since figures differ from run to run. CPU seconds:
//     host <all> <of these, to read the device's text> <what reading all of that takes> <kernels> <blob>
//     kernel <all> <blob>                                            it read what the host unit's stubs did
//     alone <all> <of these, to read the device's text> <blob>       it read all of that
//     refused <all> <blob>                                           a kernel, or host code, that cannot be had by
//     itself whole <all> <blob>                                             the device code of all kernels
// Lines that do not parse are passed over. Files are read from the end, 64 KiB at most.
#pragma once

#include <string>
#include <utility>

namespace lazyck::rt {

class ByKernel {
 public:
    // `path` is the library's file, the name is as it stands in it.
    ByKernel(std::string path, std::string blob) : m_path(std::move(path)), m_blob(std::move(blob)) {}

    // Whether by kernel is expected to cost at most what the whole blob does, with a margin where that was reckoned.
    // Where nothing is known of it, its library's other blobs say; where nothing is known of these, the first goes by
    // kernel, and tells.
    bool is_cheaper() const;
    // Keeps what `lazyck-unit` says that a compile took (units/src/units.h), if it is one of the lines above. A record
    // that cannot be kept is no error.
    void add(const std::string& said) const;

 private:
    std::string m_path, m_blob;
};

}  // namespace lazyck::rt
