// Asks whether what a job is about to make exists already. The process that started this program
// looks that up by everything that decides the result: the text that the compiler proper would get,
// and the commands. This depends on less than the contents of the source's headers. It often stays
// equal when a header changes, for example in a comment or in a declaration that no kernel leads
// to.
#pragma once

#include <string>
#include <string_view>

#include "steps.h"
#include "units.h"

namespace lazyck::units {

// Is thrown if the result exists already, so that there is nothing more to do.
struct Answered {};

// Collects what decides the result of a job, in words that mean the same in every directory. The
// digest of this program's sources is a part of it.
class Material {
 public:
    explicit Material(const Job& job);

    // Whether somebody answers questions. If not, no material is collected.
    bool is_asked_for() const { return m_job.asker >= 0; }
    // Adds a command that will be run, or a part of one.
    void add(const Words& words);
    void add(const std::string& word) { add(Words{word}); }
    // Adds the command of a compiler that gets preprocessed text or IR. Leaves out words that only
    // concern the reading of headers, or that only name a place.
    void add_after_reading(const Words& words);
    // Adds the output of a preprocessor. File names and line numbers count only if something looks
    // at them: the options of `compile`, which reads the text, or the text itself.
    void add_source(std::string_view text, const Step& compile);
    // Adds LLVM IR, as text.
    void add_ir(std::string_view text);

    // Writes the material to the file `<output>.text`, asks, and throws Answered if the result
    // exists.
    void ask() const;

 private:
    // Removes the source's directory wherever it is named.
    void drop_directory(std::string& text) const;

    const Job& m_job;
    std::string m_text;
};

}  // namespace lazyck::units
