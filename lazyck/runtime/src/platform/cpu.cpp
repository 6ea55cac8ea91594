#include "platform/cpu.h"

#include <atomic>
#include <cstdint>

#include "machine/machine.h"

namespace lazyck::rt {

namespace {

using machine::CpuWords;

constexpr std::size_t k_word_digits = 8;  // of a word
constexpr char k_cpu_digits[] = "0123456789abcdef";

std::atomic<const CpuWords*> own_cpu{nullptr};
std::atomic<bool> is_any_cpu{false};

// Asks the CPU once: a virtual machine traps each question.
const CpuWords& this_cpu() {
    const CpuWords* known = own_cpu.load(std::memory_order_acquire);
    if (known != nullptr) return *known;
    const auto* const made = new CpuWords(machine::cpu_words());
    if (own_cpu.compare_exchange_strong(known, made)) return *made;
    delete made;
    return *known;
}

std::string cpu_text(const CpuWords& words) {
    std::string text;
    for (const std::uint32_t word : words) {
        for (std::size_t shift = 4 * k_word_digits; shift != 0; shift -= 4)
            text += k_cpu_digits[word >> (shift - 4) & 0xf];
    }
    return text;
}

}  // namespace

std::string cpu_features() { return cpu_text(this_cpu()); }

bool cpu_has(std::string_view features) {
    if (features.empty() || is_any_cpu.load(std::memory_order_relaxed)) return true;
    const std::string mine = cpu_features();
    if (features.size() != mine.size()) return false;
    constexpr std::string_view k_digit = k_cpu_digits;
    for (std::size_t i = 0; i < mine.size(); ++i) {
        const std::size_t wanted = k_digit.find(features[i]);
        if (wanted == std::string_view::npos || (wanted & ~k_digit.find(mine[i])) != 0) return false;
    }
    return true;
}

void assume_any_cpu() { is_any_cpu = true; }

std::vector<std::pair<std::string, std::string>> cpu_levels() {
    std::vector<std::pair<std::string, std::string>> levels;
    for (const machine::CpuLevel& level : machine::k_cpu_levels) {
        if (level.option != nullptr) levels.emplace_back(level.option, cpu_text(level.words));
    }
    return levels;
}

}  // namespace lazyck::rt
