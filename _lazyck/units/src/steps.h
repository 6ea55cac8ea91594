// The steps of a compile by nvcc, as `--dryrun` prints them for the command at hand.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "process.h"

namespace lazyck::units {

using Words = std::vector<std::string>;

// A program that the compiler driver would start.
struct Step {
    Words words;

    // Returns the last path component of the program.
    std::string program() const;
    bool has(const std::string& word) const;
    // Returns the word behind `option`, or an empty string if there is none.
    std::string value(const std::string& option) const;
    void set_value(const std::string& option, const std::string& value);
    void set_input(const std::string& from, const std::string& to);
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

    // Returns the pass whose stubs the host code includes. Throws Refused.
    const DevicePass& pass_of_stubs() const;
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
