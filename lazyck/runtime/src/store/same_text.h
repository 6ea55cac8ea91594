// Finds an entry that was made of a compile's own text before, under another key (docs/key.md).
#pragma once

#include <memory>

#include "bundle/recipe.h"
#include "platform/staging.h"
#include "store/remote.h"

namespace lazyck::rt {

class SameText {
 public:
    SameText(const Missing& missing, const RecipeRow& recipe) : m_missing(missing), m_recipe(recipe) {}

    // Returns whether `argv` is a command of `lazyck-unit` that asks for what was made of a text
    // (units/src/units.h).
    bool is_asked_by(const Strings& argv) const;
    // Answers one question of `lazyck-unit`, which has left the text in `staging`. If there is an
    // entry, copies it there as `product`. Returns whether another question may follow.
    bool answer(int asker, const StagingDirectory& staging, const char* product) noexcept;
    bool is_taken_over() const { return m_is_taken_over; }
    // Returns the digest of the text's key, or zeros if no text was told.
    Digest digest() const { return m_key.is_text ? m_key.id() : Digest(); }
    // Has later compiles of this text find the entry, which is published.
    void keep() const;
    // Gives the entry to the remote caches that lacked one of this text, under the text's key.
    void give_to_remotes();

 private:
    Digest digest_of_text(const StagingDirectory& staging) const;
    UniqueFd find();

    const Missing& m_missing;
    const RecipeRow& m_recipe;
    EntryKey m_key;  // of the text, once `lazyck-unit` has told it
    std::unique_ptr<RemoteEntry> m_remote;
    bool m_is_taken_over = false;
};

}  // namespace lazyck::rt
