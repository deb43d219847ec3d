# bash.sh - what a shell is told before the first run. Line by line, by an interactive shell: no `if` over lines that a
# plain sh could not read.
unset MAILCHECK PROMPT_COMMAND TMOUT
PS1= PS2= PS4='+ '
test -z "$BASH_VERSION" || { set +o history; set +m; unset HISTFILE; BASH_ARGV0=bash; readonly __parley_state __parley_durable; }

# `set -e` ends the shell and keeps what it knew; `exit` just ends it, unless the context is durable.
__parley_keep() {
    case $__parley_durable$- in 1* | *e*) ;; *) return ;; esac
    case $__parley_durable$BASH_COMMAND in exit* | 'builtin exit'* | 'exec '*) return ;; esac
    {
        echo "#$-"
        set +ex
        declare -p
        declare -f
        alias -p
        trap -p
        shopt -p
        set +o
        printf 'cd %q\n' "$PWD"
    } >"$__parley_state" 2>/dev/null
}
test -z "$BASH_VERSION" || trap __parley_keep EXIT
