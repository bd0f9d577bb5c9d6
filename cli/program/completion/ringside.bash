# bash completion of ringside; made by `ringside help --as bash`.
_ringside() {
  local program=${COMP_WORDS[0]/#\~/$HOME} before=("${COMP_WORDS[@]:1:COMP_CWORD-1}")
  local next=$("$program" help --as words -- "${before[@]}" 2>/dev/null | cut -f 1)
  COMPREPLY=($(compgen -W "$next" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _ringside ringside
