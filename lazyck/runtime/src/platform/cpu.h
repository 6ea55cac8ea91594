// Tells what the CPU can do. Code for the CPU that built a library (`-march=native`) may not run on
// the CPU that loads it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lazyck::rt {

// Returns this CPU's features, as text that only `cpu_has` reads.
std::string cpu_features();

// Returns whether this CPU has all `features`, or always after `assume_any_cpu`. No features are an
// empty text. What was written on another kind of machine, or damaged, no CPU has.
bool cpu_has(std::string_view features);

// Makes `cpu_has` answer yes in this process, which compiles for others and runs none of the code.
void assume_any_cpu();

// Returns the compiler options that name a level of this kind of machine, each with the level's
// features, the highest first.
std::vector<std::pair<std::string, std::string>> cpu_levels();

}  // namespace lazyck::rt
