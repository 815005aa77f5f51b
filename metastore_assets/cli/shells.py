"""Completion for bash and fish.

With click's own scripts, completion of keys such as `day=2024` fails.
"""

from __future__ import annotations

import os
import re

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    add_completion_class,
    split_arg_string,
)

_CURSOR = "\0"
_SPECIAL = re.compile(r"([^\w@%+=:,./~-])")


class Bash(BashComplete):
    """Completion for bash, which splits words at `=` and `:` and completes only the last piece."""

    source_template = """\
%(complete_func)s() {
    local IFS=$'\\n' type value
    while IFS=',' read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done < <(COMP_LINE="${COMP_LINE:0:$COMP_POINT}" COMP_WORD="${COMP_WORDS[COMP_CWORD]}" \\
        COMP_WORDBREAKS="$COMP_WORDBREAKS" %(complete_var)s=bash_complete "$1" 2>/dev/null)
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return (words before the cursor, word at the cursor)."""
        # Only our completion script sets this variable.
        if "COMP_LINE" not in os.environ:
            return super().get_completion_args()
        # The marker becomes the end of the last word, or a word after a blank, even inside open quotes.
        _, *words = split_arg_string(os.environ["COMP_LINE"] + _CURSOR)
        return words[:-1], words[-1].removesuffix(_CURSOR)

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        """Return completions for the part of the word that bash replaces: `2024` in `day=2024`.

        Special characters are escaped, also inside quotes. Otherwise, the shell would execute a name such as `$(id)`.
        """
        completions = super().get_completions(args, incomplete)
        if "COMP_LINE" not in os.environ:
            return completions
        quote = _open_quote(os.environ["COMP_LINE"])
        if quote and os.environ.get("COMP_WORD", "").startswith(quote):
            return [
                CompletionItem(_escape_quoted(item.value, quote), item.type, item.help)
                if item.type == "plain"
                else item
                for item in completions
            ]
        breaks = os.environ.get("COMP_WORDBREAKS", "")
        start = max((incomplete.rfind(char) + 1 for char in "=:@" if char in breaks), default=0)
        skipped_prefix = incomplete[:start]
        return [_completed_piece(item, skipped_prefix) if item.type == "plain" else item for item in completions]


class Fish(FishComplete):
    """Completion for fish, with support for commas in completions."""

    source_template = FishComplete.source_template.replace('string split ","', 'string split --max 1 ","')


def _open_quote(line: str) -> str:
    """Return the quote that is open at the end of a line of bash; an empty text if there is none."""
    quote, is_escaped = "", False
    for char in line:
        if is_escaped:
            is_escaped = False
        elif char == "\\" and quote != "'":
            is_escaped = True
        elif char in ("'", '"') and quote in ("", char):
            quote = "" if quote else char
    return quote


def _escape_quoted(value: str, quote: str) -> str:
    """Escape a text for bash, to be inserted after an open quote: after `'`, `it's` becomes `it'\\''s`.

    Args:
        value: The text.
        quote: The open quote, `'` or `"`.
    """
    if quote == "'":
        return value.replace("'", "'\\''")
    # Bash replaces `!` by commands of the history, except in single quotes.
    return re.sub(r'([$`"\\])', r"\\\1", value).replace("!", "\"'!'\"")


def _completed_piece(item: CompletionItem[str], skipped_prefix: str) -> CompletionItem[str]:
    # For `--partition=day=2024`, click completes only the part after the option.
    value = item.value
    while skipped_prefix and not value.startswith(skipped_prefix):
        skipped_prefix = skipped_prefix.partition("=")[2]
    return CompletionItem(_SPECIAL.sub(r"\\\1", value[len(skipped_prefix) :]), item.type, item.help)


def register_shells() -> None:
    """Make click use `Bash` and `Fish` for these shells."""
    add_completion_class(Bash)
    add_completion_class(Fish)
