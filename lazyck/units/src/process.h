// Runs a program and waits for it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lazyck::units {

// Its exit status, 128 and more for a signal. With `output`, what it writes to both of its outputs goes there.
// Throws std::runtime_error where it cannot be started.
int run_program(const std::vector<std::string>& words, std::string* output);

// CPU seconds of all programs that were run.
double cpu_seconds();

// The whole file. Throws std::runtime_error.
std::string read_file(const std::string& path);
void write_file(const std::string& path, std::string_view text);

}  // namespace lazyck::units
