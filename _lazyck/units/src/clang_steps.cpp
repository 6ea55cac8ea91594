#include "clang_steps.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "output.h"
#include "process.h"
#include "text.h"

namespace lazyck::units {

namespace {

constexpr const char* k_image = "-fcuda-include-gpubinary";
constexpr std::string_view k_output = "-output=";
constexpr std::string_view k_module_id = "-cuid=";

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

// Returns the files of a make rule that a compiler wrote.
std::set<std::string> files_of_rule(std::string_view text) {
    std::set<std::string> files;
    std::string name;
    for (std::size_t i = std::min(text.find(": "), text.size()); i < text.size(); ++i) {
        const char c = text[i], next = i + 1 < text.size() ? text[i + 1] : '\n';
        if (c == '\\' && (next == ' ' || next == '#')) {
            name += text[++i];
        } else if (c == '$' && next == '$') {
            name += text[++i];
        } else if (c == ' ' || c == '\n' || (c == '\\' && next == '\n')) {
            if (!name.empty() && name != ":") files.insert(name);
            name.clear();
        } else {
            name += c;
        }
    }
    return files;
}

// Returns the step as a preprocessor's that writes its make rule to `rule`.
Step preprocessor_of(const Step& step, const std::string& verb, const std::string& output, const std::string& rule,
                     Words more) {
    Step asked = step;
    asked.set_input("-emit-obj", verb);
    asked.set_value("-o", output);
    // The rule that this step would have written belongs to another step.
    asked.set_value("-dependency-file", rule);
    more.emplace_back("-w");
    const auto place = std::find(asked.words.begin(), asked.words.end(), "-cc1");
    asked.words.insert(place + 1, more.begin(), more.end());
    return asked;
}

}  // namespace

std::string ClangSteps::image() const { return host.value(k_image); }

void ClangSteps::forget_place() {
    for (Step& step : device) {
        for (std::string& word : step.words) {
            if (begins_with(word, k_module_id)) word = std::string(k_module_id) + "0";
        }
    }
}

void ClangSteps::leave_uncompressed() {
    const auto compresses = [](const std::string& word) { return begins_with(word, "-compress"); };
    for (Step& step : between)
        step.words.erase(std::remove_if(step.words.begin(), step.words.end(), compresses), step.words.end());
}

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

std::string preprocessed(const Step& step, const std::string& directory) {
    const std::string text = directory + "/text";
    run(preprocessor_of(step, "-E", text, directory + "/rule", {}));
    return read_file(text);
}

std::set<std::string> files_of(const Step& step, const std::string& directory) {
    const std::string rule = directory + "/rule";
    Words more = {"-sys-header-deps"};
    if (!step.has("-dependency-file")) more.insert(more.end(), {"-dependency-file", rule, "-MT", "unit"});
    run(preprocessor_of(step, "-Eonly", "-", rule, more));
    return files_of_rule(read_file(rule));
}

}  // namespace lazyck::units
