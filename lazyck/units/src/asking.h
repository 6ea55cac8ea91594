// Whether what a job is about to make exists already. Who started this program may know that, by all that decides what
// comes out: the text that a compiler proper would be given, and the commands. That is less than what the source's
// headers hold, so it is often the same where they differ: in comments, in declarations that a kernel does not lead to.
#pragma once

#include <string>
#include <string_view>

#include "steps.h"
#include "units.h"

namespace lazyck::units {

// Thrown where it exists: there is nothing more to do.
struct Answered {};

// What decides what a job makes, in words that mean the same in every directory: this program itself, too.
class Material {
 public:
    explicit Material(const Job& job);

    // Whether somebody asks for it: else all of this is for nothing.
    bool is_asked_for() const { return m_job.asker >= 0; }
    // A command that will be run, or a part of one.
    void add(const Words& words);
    void add(const std::string& word) { add(Words{word}); }
    // The same for a compiler that is given what was preprocessed, or text of IR: without words that are about reading
    // headers, or that only name places.
    void add_after_reading(const Words& words);
    // What a preprocessor has made. Where it stood in which file counts only if somebody looks at that: the options of
    // `compile`, which reads it, or the text itself.
    void add_source(std::string_view text, const Step& compile);
    // Text of LLVM IR.
    void add_ir(std::string_view text);

    // Leaves it in the file `<output>.text`, says so, and throws Answered if the answer is that it exists.
    void ask() const;

 private:
    const Job& m_job;
    std::string m_text;
};

}  // namespace lazyck::units
