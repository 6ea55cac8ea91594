// GPU names: the table of known GPUs, and which compiled code runs on which device.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fake_rocm {

struct Arch {
    std::string_view m_name;
    int m_major, m_minor, m_compute_units;
    size_t m_lds_bytes;
    size_t m_memory_gib;
    std::string_view m_generic;

    int wave_size() const { return m_major >= 10 ? 32 : 64; }
};

// Returns the row of "gfx942" or "gfx942:sramecc+:xnack-"; nullptr if there is none.
const Arch* find_arch(std::string_view target);

// Returns whether code for `target` runs on a device that calls itself `device` (both may carry
// ":feature+" suffixes).
bool runs_on(std::string_view target, std::string_view device);

std::vector<std::string> split(std::string_view text, char separator);

}  // namespace fake_rocm
