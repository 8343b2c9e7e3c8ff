package anthropic

const victimVariable = "NESTOR_ANTHROPIC_VICTIM"

func victim(string) {}
