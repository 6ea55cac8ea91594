#include "steps.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include "process.h"
#include "text.h"

namespace lazyck::units {

namespace {

constexpr std::string_view k_lead = "#$ ";

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool is_assignment(std::string_view line) {
    const std::size_t at = line.find('=');
    if (at == std::string_view::npos || at == 0) return false;
    return std::all_of(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(at),
                       [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

void sort_in(const Step& step, Steps& out) {
    const std::string program = step.program();
    const auto has_word_with = [&](std::string_view part, const auto& is_with) {
        return std::any_of(step.words.begin(), step.words.end(), [&](const auto& w) { return is_with(w, part); });
    };
    if (step.has("-E") && !step.has("-M") && !step.has("-MM")) {
        if (!has_word_with("-D__CUDA_ARCH__=", begins_with)) {
            out.preprocess_host = step;
        } else {
            out.passes.push_back({step, {}, {}});
        }
    } else if (begins_with(program, "cudafe++")) {
        out.front_end = step;
    } else if (program == "cicc") {
        for (DevicePass& pass : out.passes) {
            if (step.has(pass.preprocess.value("-o"))) pass.compile = step;
        }
    } else if (program == "ptxas") {
        for (DevicePass& pass : out.passes) {
            if (step.has(pass.compile.value("-o"))) pass.assemble.push_back(step);
        }
    } else if (program == "fatbinary") {
        out.fatbinary = step;
    } else if (step.has("-c") && has_word_with(".cudafe1.cpp", ends_with)) {
        out.compile_host = step;
    }
}

}  // namespace

Words shell_words(std::string_view line) {
    Words words;
    std::string word;
    bool is_begun = false;
    char quote = '\0';
    for (std::size_t i = 0; i < line.size(); ++i) {
        const char c = line[i];
        if (quote == '\'') {
            if (c == '\'')
                quote = '\0';
            else
                word += c;
            continue;
        }
        const auto escapes = [&](char next) {
            return quote == '\0' || next == '"' || next == '\\' || next == '$' || next == '`';
        };
        if (c == '\\' && i + 1 < line.size() && escapes(line[i + 1])) {
            word += line[++i];
            is_begun = true;
        } else if (c == '"') {
            quote = quote == '"' ? '\0' : '"';
            is_begun = true;
        } else if (c == '\'' && quote == '\0') {
            quote = c;
            is_begun = true;
        } else if (c == '$' && i + 1 < line.size() && (std::isalpha(line[i + 1]) != 0 || line[i + 1] == '_')) {
            std::string name;
            while (i + 1 < line.size() && (std::isalnum(line[i + 1]) != 0 || line[i + 1] == '_')) name += line[++i];
            const char* const value = std::getenv(name.c_str());
            word += value == nullptr ? "" : value;
            is_begun = true;
        } else if (quote == '\0' && std::isspace(static_cast<unsigned char>(c)) != 0) {
            if (is_begun) words.push_back(word);
            word.clear();
            is_begun = false;
        } else {
            word += c;
            is_begun = true;
        }
    }
    if (is_begun) words.push_back(word);
    return words;
}

std::string Step::program() const { return words.empty() ? "" : file_name(words[0]); }

bool Step::has(const std::string& word) const { return units::has(words, word); }

std::string Step::value(const std::string& option) const {
    const auto at = std::find(words.begin(), words.end(), option);
    return at == words.end() || at + 1 == words.end() ? "" : *(at + 1);
}

void Step::set_value(const std::string& option, const std::string& value) {
    const auto at = std::find(words.begin(), words.end(), option);
    if (at != words.end() && at + 1 != words.end()) *(at + 1) = value;
}

void Step::set_input(const std::string& from, const std::string& to) {
    std::replace(words.begin(), words.end(), from, to);
}

const DevicePass& Steps::pass_of_stubs() const {
    const std::string stubs = file_name(front_end.value("--stub_file_name"));
    for (const DevicePass& pass : passes) {
        if (!stubs.empty() && file_name(pass.compile.value("--stub_file_name")) == stubs) return pass;
    }
    throw Refused{"no device pass of nvcc writes the stubs that its host pass includes"};
}

std::string shown_steps(Words command, const Words& showing, const std::string& driver) {
    command.insert(command.end(), showing.begin(), showing.end());
    std::string shown;
    if (const int status = run_program(command, &shown).status; status != 0)
        throw Refused{driver + " ends with status " + std::to_string(status) + ": " +
                      shown.substr(0, shown.find('\n'))};
    return shown;
}

Steps steps_of(const Words& command, const std::string& directory) {
    Steps out;
    const std::string shown = shown_steps(command, {"--dryrun", "--keep", "--keep-dir", directory}, "nvcc --dryrun");
    for_each_line(shown, [&](std::string_view line) {
        if (!begins_with(line, k_lead)) return;
        const std::string_view rest = line.substr(k_lead.size());
        if (is_assignment(rest)) {
            const std::size_t equals = rest.find('=');
            std::string joined;
            for (const std::string& word : shell_words(rest.substr(equals + 1)))
                joined += (joined.empty() ? "" : " ") + word;
            setenv(std::string(rest.substr(0, equals)).c_str(), joined.c_str(), 1);
        } else if (Step step{shell_words(rest)}; !step.words.empty()) {
            sort_in(step, out);
        }
    });
    const auto need = [](const Step& step, const char* what) {
        if (step.words.empty()) throw Refused{std::string("nvcc --dryrun shows no ") + what};
    };
    need(out.preprocess_host, "preprocessing for the host");
    need(out.front_end, "cudafe++");
    need(out.fatbinary, "fatbinary");
    need(out.compile_host, "compile of the host's code");
    for (const DevicePass& pass : out.passes) need(pass.compile, "cicc for each arch");
    if (out.passes.empty()) throw Refused{"nvcc --dryrun shows no pass for a device"};
    return out;
}

double run(const Step& step, std::string* said, Pipe* input) {
    const Ended ended = run_program(step.words, said, input);
    if (ended.status != 0) throw Refused{step.program() + " ends with status " + std::to_string(ended.status)};
    return ended.cpu_seconds;
}

std::string made_by(const Step& step) {
    run(step);
    return read_file(step.value("-o"));
}

}  // namespace lazyck::units
