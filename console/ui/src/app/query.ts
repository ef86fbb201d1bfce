import { QueryClient } from "@tanstack/react-query";
import { asProblem } from "../api/problem";

/** What was read stays on the screen until something newer is there; focus and remounting never read anew by themselves. */
export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      refetchOnWindowFocus: false,
      retry: (failures, error) => failures < 2 && asProblem(error).isPassing,
      retryDelay: (failures) => 300 * 2 ** failures,
    },
    mutations: { retry: false },
  },
});
