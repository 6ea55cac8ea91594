// Runs a program and waits for it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lazyck::units {

struct Ended {
    int status;          // 128 and more for a signal
    double cpu_seconds;  // of itself and of what it started
};

// What one program may read as if it were a file, before all of it is there.
class Pipe {
 public:
    // Throws std::runtime_error.
    Pipe();
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;
    ~Pipe();
    // The path by which the program has it.
    std::string path() const;
    // All that there will be; ends early where the program has ended.
    void write(std::string_view text);

 private:
    friend Ended run_program(const std::vector<std::string>& words, std::string* output, Pipe* input);
    int number() const { return m_ends[0] + 1; }
    int m_ends[2] = {-1, -1};
};

// With `output`, what it writes to both of its outputs goes there; it alone has `input`. Throws std::runtime_error
// where it cannot be started.
Ended run_program(const std::vector<std::string>& words, std::string* output, Pipe* input = nullptr);

// CPU seconds of all programs that were run.
double cpu_seconds();

// The whole file. Throws std::runtime_error.
std::string read_file(const std::string& path);
void write_file(const std::string& path, std::string_view text);

}  // namespace lazyck::units
