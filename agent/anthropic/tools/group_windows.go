package tools

import (
	"os"
	"os/exec"
)

// descriptorPath is empty: ripgrep cannot be handed open files here.
const descriptorPath = ""

// setAttributes does nothing: there are no process groups to be killed.
func setAttributes(*exec.Cmd) {}

// signalGroup ends the process alone.
func signalGroup(p *os.Process, waited, kill bool) {
	if !waited && kill {
		p.Kill()
	}
}

func groupAlive(*os.Process) bool { return false }

func killGroup(p *os.Process) { p.Kill() }

func killMarked(string) {}

func exitCode(state *os.ProcessState) int {
	if state == nil {
		return -1
	}
	return state.ExitCode()
}
