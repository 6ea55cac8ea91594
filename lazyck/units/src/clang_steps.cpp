#include "clang_steps.h"

namespace lazyck::units {

namespace {

constexpr const char* k_image = "-fcuda-include-gpubinary";
constexpr std::string_view k_output = "-output=";

// Returns the file that a step writes, or an empty string if its words do not say.
std::string output_of(const Step& step) {
    for (const std::string& word : step.words) {
        if (begins_with(word, k_output)) return word.substr(k_output.size());
    }
    return step.value("-o");
}

// Makes the steps write to `directory` what the driver would have written to its temporary files.
void move_outputs(ClangSteps& steps, const std::string& directory) {
    std::vector<Step*> makers;
    for (Step& step : steps.device) makers.push_back(&step);
    for (Step& step : steps.between) makers.push_back(&step);
    std::vector<Step*> all = makers;
    all.push_back(&steps.host);
    int number = 0;
    for (Step* const maker : makers) {
        const std::string from = output_of(*maker);
        if (from.empty()) throw Refused{"clang -### shows a step of " + maker->program() + " that names no output"};
        const std::string to = directory + "/" + std::to_string(++number) + from.substr(from.rfind('.') + 1);
        for (Step* const step : all) {
            for (std::string& word : step->words) replace_all(word, from, to);
        }
    }
}

void sort_in(Step step, ClangSteps& out) {
    if (!step.has("-cc1")) {
        // This is another program's step, such as the bundler's. After the compile of host code it
        // would be an assembler's, or another compiler's.
        if (!out.host.words.empty()) throw Refused{"clang -### shows a step of " + step.program() + " for the host"};
        out.between.push_back(std::move(step));
        return;
    }
    if (!step.has("-emit-obj")) throw Refused{"clang -### shows a compile in several steps"};
    if (step.has("-fcuda-is-device")) {
        out.device.push_back(std::move(step));
    } else if (!step.value(k_image).empty() && out.host.words.empty()) {
        out.host = std::move(step);
    } else {
        throw Refused{"clang -### shows a compile that is neither for a device nor includes an image"};
    }
}

}  // namespace

std::string ClangSteps::image() const { return host.value(k_image); }

ClangSteps clang_steps_of(const Words& command, const std::string& directory) {
    ClangSteps out;
    for_each_line(shown_steps(command, {"-###"}, "clang -###"), [&](std::string_view line) {
        if (begins_with(line, " \"")) sort_in({shell_words(line)}, out);
    });
    if (out.device.empty()) throw Refused{"clang -### shows no compile for a device"};
    if (out.host.words.empty()) throw Refused{"clang -### shows no compile of host code that includes an image"};
    move_outputs(out, directory);
    return out;
}

Step with_options(Step step, const Words& options) {
    const auto found = std::find(step.words.begin(), step.words.end(), "-cc1");
    step.words.insert(found + 1, options.begin(), options.end());
    return step;
}

}  // namespace lazyck::units
