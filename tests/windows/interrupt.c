/* Runs a program in a console group of its own, sends it Ctrl-C once the file `interrupt-now` is there,
 * and returns its exit code. */
#include <stdio.h>
#include <string.h>
#include <windows.h>

int main(int count, char **arguments) {
    char line[4096] = "";
    for (int i = 1; i < count; i++) {
        strcat(line, arguments[i]);
        strcat(line, " ");
    }
    STARTUPINFOA start = {.cb = sizeof start, .dwFlags = STARTF_USESTDHANDLES};
    start.hStdInput = GetStdHandle(STD_INPUT_HANDLE);
    start.hStdOutput = GetStdHandle(STD_OUTPUT_HANDLE);
    start.hStdError = GetStdHandle(STD_ERROR_HANDLE);
    PROCESS_INFORMATION process;
    if (!CreateProcessA(NULL, line, NULL, NULL, TRUE, 0, NULL, NULL, &start, &process)) return 100;
    while (GetFileAttributesA("interrupt-now") == INVALID_FILE_ATTRIBUTES) {
        if (WaitForSingleObject(process.hProcess, 50) == WAIT_OBJECT_0) return 101;
    }
    /* This process shares the console and must outlive the event. */
    SetConsoleCtrlHandler(NULL, TRUE);
    if (!GenerateConsoleCtrlEvent(CTRL_C_EVENT, 0)) return 102;
    if (WaitForSingleObject(process.hProcess, 60000) != WAIT_OBJECT_0) return 103;
    DWORD code = 104;
    GetExitCodeProcess(process.hProcess, &code);
    return (int)code;
}
