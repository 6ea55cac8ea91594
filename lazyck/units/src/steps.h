// The steps of a compile by nvcc, as its own `--dryrun` shows them for the command at hand.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "process.h"

namespace lazyck::units {

using Words = std::vector<std::string>;

// One program that nvcc would start.
struct Step {
    Words words;

    // The last path component of the program.
    std::string program() const;
    bool has(const std::string& word) const;
    // The word behind `option`; "" where there is none.
    std::string value(const std::string& option) const;
    // What `-D<name>=` says.
    std::string macro(const std::string& name) const;
    void set_value(const std::string& option, const std::string& value);
    void set_input(const std::string& from, const std::string& to);
};

// The device's passes for one arch: of the text, of the compiler proper; and of the assembler, one for each code.
struct DevicePass {
    Step preprocess, compile;
    std::vector<Step> assemble;
};

// All steps of one compile. Files that they leave are named by paths in the directory that was given.
struct Steps {
    Step preprocess_host, front_end, fatbinary, compile_host;
    std::vector<DevicePass> passes;

    // The pass whose stubs the host code includes. Throws Refused.
    const DevicePass& pass_of_stubs() const;
};

// This compile cannot be taken apart; why, is for people.
struct Refused {
    std::string reason;
};

// The words of a line that a compiler's driver means for a shell.
Words shell_words(std::string_view line);

// The steps of `command`, which compiles one source to an object, with temporary files in `directory`. What they want
// of the environment is set in this process's own. Throws Refused where they are not those that are known.
Steps steps_of(const Words& command, const std::string& directory);

// Runs a step; what it says goes to `said`, or to standard error; it alone has `input`. Its CPU seconds. Throws
// Refused.
double run(const Step& step, std::string* said = nullptr, Pipe* input = nullptr);

}  // namespace lazyck::units
