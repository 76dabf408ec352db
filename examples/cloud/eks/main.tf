# One installation of Headrace on AWS: see README.md.

terraform {
  required_version = ">= 1.11" # write-only arguments
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 6.0"
    }
  }
}

variable "name" {
  description = "What every object is called or begins with."
  type        = string
  default     = "headrace"
}

variable "region" {
  type    = string
  default = "us-east-1"
}

variable "bucket" {
  description = "Name of the bucket for packages; no other account of AWS may have it."
  type        = string
}

variable "admins" {
  description = "ARNs of the IAM roles and users that administer the cluster."
  type        = set(string)
}

variable "admin_cidrs" {
  description = "From where they reach its API server."
  type        = list(string)
}

variable "force_destroy" {
  description = "Let terraform destroy remove packages and images."
  type        = bool
  default     = false
}

provider "aws" {
  region = var.region
  default_tags {
    tags = { application = var.name }
  }
}
