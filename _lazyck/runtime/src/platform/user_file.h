// Reads the user's settings file, ~/.config/lazyck/lazyck.env: values of lazyck's variables that
// the environment lacks.
#pragma once

#include <map>
#include <string>

#include "base/text.h"

namespace lazyck::rt {

struct UserFile {
    std::string path;                           // empty if no directory is known for it
    std::map<std::string, std::string> values;  // by variable
    Strings problems;                           // why the file, or a line of it, was not read
};

// Reads the file below `config_home` (XDG_CONFIG_HOME), or else below `home` (HOME). A missing file
// has no values. A file that others could have written is not read: LAZYCK_LAUNCHER in it would run
// their program.
UserFile read_user_file(const std::string& config_home, const std::string& home);

// Returns warnings about the variables of `environment` (NAME=value each) and of `file` that lazyck
// does not know. Each warning suggests the variable that was probably meant.
Strings unknown_variables(const Strings& environment, const UserFile& file);

}  // namespace lazyck::rt
