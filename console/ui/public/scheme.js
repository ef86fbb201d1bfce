// Sets the theme before anything is painted, so that no page flashes white in the dark. The rest of it is Mantine's.
{
  const wished = localStorage.getItem("mantine-color-scheme-value");
  const isDark = wished === "dark" || (wished !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.setAttribute("data-mantine-color-scheme", isDark ? "dark" : "light");
}
