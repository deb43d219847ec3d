# main.py - which of them this is: kernel | script PATH ARGUMENT... | zygote scripts | zygote contexts

BOOT = "import os;exec(compile(os.pread(3,os.fstat(3).st_size,0),'<parley>','exec'))"


def start_anew(arguments):
    """As the zygote does not fit: what it would have been forked for, in an interpreter of its own."""
    if arguments[0] == "script":
        os.close(3)
        replace_by_interpreter(arguments[1:])
    program = python_of(os.environ) or sys.executable
    os.set_inheritable(3, True)
    os.execv(program, ["python3", "-c", BOOT] + arguments)


def main():
    arguments, shell = sys.argv[1:], None
    if arguments[0] == "zygote":
        zygote = Zygote(arguments[1])
        arguments, shell = zygote.serve(), zygote.shell
        if not zygote.fits():
            start_anew(arguments)
    os.close(3)
    if arguments[0] == "kernel":
        run_kernel(shell or make_shell())
    elif arguments[0] == "script":
        run_script(arguments[1:])


main()
