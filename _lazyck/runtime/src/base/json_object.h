// Builds a JSON object on one line, member by member.
#pragma once

#include <string>

#include "base/text.h"

namespace lazyck::rt {

class JsonObject {
 public:
    void add(const char* name, const std::string& literal) {
        m_text += (m_text.empty() ? "{\"" : ", \"") + std::string(name) + "\": " + literal;
    }
    // Adds a string. An empty value is left out.
    void add_text(const char* name, const std::string& value) {
        if (!value.empty()) add(name, json_string(value));
    }
    std::string text() const { return m_text.empty() ? "{}" : m_text + "}"; }

 private:
    std::string m_text;
};

}  // namespace lazyck::rt
