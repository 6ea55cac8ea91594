// Runs a program and waits for it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lazyck::units {

struct Ended {
    int status;          // the exit status; 128 + the signal's number if a signal ended it
    double cpu_seconds;  // of the program and of those that it started
};

// Text that one program can read as if it were a file, before all of it is known.
class Pipe {
 public:
    // Opens the pipe. Throws std::runtime_error.
    Pipe();
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;
    ~Pipe();
    // The path under which the program opens the text.
    std::string path() const;
    // Writes the whole text and closes the pipe. Stops early if the program has ended.
    void write(std::string_view text);

 private:
    friend Ended run_program(const std::vector<std::string>& words, std::string* output, Pipe* input);
    int number() const { return m_ends[0] + 1; }
    int m_ends[2] = {-1, -1};
};

// Runs a program and waits for it. If `output` is given, the program's standard output and standard
// error are appended to it. Only this program inherits `input`. Throws std::runtime_error if the
// program cannot be started.
Ended run_program(const std::vector<std::string>& words, std::string* output, Pipe* input = nullptr);

// Returns the CPU seconds of all programs that have been run.
double cpu_seconds();

// Returns the contents of a file. Throws std::runtime_error.
std::string read_file(const std::string& path);
void write_file(const std::string& path, std::string_view text);

}  // namespace lazyck::units
