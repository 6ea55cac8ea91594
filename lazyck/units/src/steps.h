// Runs programs, and the steps of a compile by nvcc, as `--dryrun` prints them for the command at
// hand.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text.h"

namespace lazyck::units {

using Words = std::vector<std::string>;

// Returns the CPU seconds of all programs that have been run.
double cpu_seconds();

// Returns the contents of a file. Throws std::runtime_error.
std::string read_file(const std::string& path);
void write_file(const std::string& path, std::string_view text);

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
    friend int run_program(const Words& words, std::string* output, Pipe* input, double* seconds);
    int number() const { return m_ends[0] + 1; }
    int m_ends[2] = {-1, -1};
};

// A program that the compiler driver would start.
struct Step {
    Words words;

    std::string program() const { return words.empty() ? "" : file_name(words[0]); }
    bool has(const std::string& word) const { return units::has(words, word); }
    // Returns the word behind `option`, or an empty string if there is none.
    std::string value(const std::string& option) const;
    void set_value(const std::string& option, const std::string& value);
    void set_input(const std::string& from, const std::string& to) {
        std::replace(words.begin(), words.end(), from, to);
    }
    void remove(std::string_view lead);
};

// The steps of one device arch: the preprocessor, the compiler proper, and one assembler step for
// each code that is made.
struct DevicePass {
    Step preprocess, compile;
    std::vector<Step> assemble;
};

// All steps of one compile. They write their files to the directory that was given.
struct Steps {
    Step preprocess_host, front_end, fatbinary, compile_host;
    std::vector<DevicePass> passes;
};

// Is thrown if this compile cannot be split. The reason is for people to read.
struct Refused {
    std::string reason;
};

// Returns what a compiler driver prints for `command` with the options `showing`, by which it shows
// its steps. Throws Refused.
std::string shown_steps(Words command, const Words& showing, const std::string& driver);

// Splits a line that a compiler driver printed, as a shell would.
Words shell_words(std::string_view line);

// Writes the module id, which makes the source's internal names unique, where a front end reads it.
// In a source without a function that has a unique name, the compiler would use its process id for
// that.
void set_module_id(const Step& front_end, const std::string& module_id);

// Returns the steps of `command`, which compiles one source to an object, with temporary files in
// `directory`. Sets the environment variables that the steps need in this process. Throws Refused
// if nvcc prints other steps than are known here.
Steps steps_of(const Words& command, const std::string& directory);

// Runs a step and returns its CPU seconds. The step's output goes to `said` if that is given, else
// to this program's own. Only this step inherits `input`. Throws Refused.
double run(const Step& step, std::string* said = nullptr, Pipe* input = nullptr);

// Runs a step and returns the contents of the file that it writes. Throws Refused.
std::string made_by(const Step& step);

}  // namespace lazyck::units
